/* SPDX-License-Identifier: Apache-2.0 */
#include "store/shared_record.h"

#include "base/check.h"

#include <stdlib.h>
#include <string.h>

hx_shared_record *hx_shared_record_new(size_t len)
{
    hx_shared_record *version = malloc(sizeof *version + len);
    if (!version) hx_fatal(HX_EXIT_BUG, "out of memory");
    *version = (hx_shared_record){.len = len};
    atomic_init(&version->references, 1);
    return version;
}

hx_shared_record *hx_shared_record_of(const hx_record *record)
{
    char head[HX_RECORD_HEAD_MAX];
    hx_buf buf = {.data = head, .cap = sizeof head, .max = sizeof head};
    hx_record_encode(record, &buf);
    size_t headers = record->answer.headers.len, body = record->answer.body.len;
    hx_shared_record *version = hx_shared_record_new(buf.len + headers + body);
    version->state = record->state;
    version->epoch = record->epoch;
    memcpy(version->bytes, head, buf.len);
    if (headers > 0) memcpy(version->bytes + buf.len, record->answer.headers.ptr, headers);
    if (body > 0) memcpy(version->bytes + buf.len + headers, record->answer.body.ptr, body);
    return version;
}

hx_shared_record *hx_shared_record_hold(hx_shared_record *version)
{
    atomic_fetch_add_explicit(&version->references, 1, memory_order_relaxed);
    return version;
}

void hx_shared_record_drop(hx_shared_record **owned)
{
    if (*owned && atomic_fetch_sub_explicit(&(*owned)->references, 1, memory_order_acq_rel) == 1) free(*owned);
    *owned = NULL;
}

hx_slice hx_shared_record_bytes(const hx_shared_record *version)
{
    return (hx_slice){version->bytes, version->len};
}

static void let_go(void *version)
{
    hx_shared_record *held = version;
    hx_shared_record_drop(&held);
}

void hx_shared_record_show(hx_shared_record *version, hx_arena *arena, hx_record *out)
{
    hx_record_error error = hx_record_decode(hx_shared_record_bytes(version), out);
    HX_CHECK(error == HX_RECORD_OK);
    hx_arena_at_end(arena, let_go, hx_shared_record_hold(version));
}
