/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as Retry-After: a span within its bounds or none; and a date that is understood is the one that we would
 * write for it. The first byte moves the present. */
#include "base/check.h"
#include "base/clock.h"
#include "core/retry/retry_after.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || size > 256) return 0;
    hx_ms now = (hx_ms)data[0] * 365 * HX_DAY / 2, at = 0, again = 0;
    hx_slice text = {(const char *)data + 1, size - 1};
    hx_ms delay = hx_retry_after(text, now, HX_RETRY_AFTER_MAX);
    HX_CHECK(delay == HX_RETRY_AFTER_NONE || (delay >= 0 && delay <= HX_RETRY_AFTER_MAX));
    HX_CHECK(delay == HX_RETRY_AFTER_NONE || delay == HX_RETRY_AFTER_MAX || delay % HX_SECOND == 0);
    if (!hx_retry_after_date(text, now, &at)) return 0;
    HX_CHECK(at % HX_SECOND == 0);
    HX_CHECK(delay != HX_RETRY_AFTER_NONE && (delay > 0) == (at > now));
    if (at < 0 || at > 250000 * HX_DAY) return 0; /* years of four digits, from 1970 on */
    char written[HX_HTTP_DATE_BYTES];
    bool is_read = hx_retry_after_date(hx_http_date(at, written), now, &again);
    HX_CHECK(is_read && again == at);
    return 0;
}
