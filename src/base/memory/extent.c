/* SPDX-License-Identifier: Apache-2.0 */
#include "base/memory/extent.h"

#include <errno.h>
#include <unistd.h>

bool hx_extent_read(const hx_extent *extent, char *to, size_t len)
{
    if (len > extent->len) return false;
    for (size_t done = 0; done < len;) {
        ssize_t n = pread(extent->fd, to + done, len - done, (off_t)(extent->at + done));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        done += (size_t)n;
    }
    return true;
}
