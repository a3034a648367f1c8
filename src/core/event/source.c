/* SPDX-License-Identifier: Apache-2.0 */
#include "core/event/source.h"

#include <string.h>

bool hx_id_is_signed(const hx_source *source)
{
    const hx_webhook_scheme *scheme = &source->scheme;
    if (source->place_count == 0 || source->id_header.len > 0) return false;
    if (source->dedupe_key || source->id_pointer.len > 0 || !scheme->id_header) return true;
    return strstr(scheme->signed_text, "{id}") != NULL;
}
