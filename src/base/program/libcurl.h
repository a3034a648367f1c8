/* SPDX-License-Identifier: Apache-2.0 */
/* libcurl, loaded when it is first needed: it brings some thirty libraries with it, which every `hapax version`
 * would pay for (docs/decisions/0010). Its header is used unchanged; its functions are called through a table. */
#ifndef HX_BASE_PROGRAM_LIBCURL_H
#define HX_BASE_PROGRAM_LIBCURL_H

#include "base/fail.h"
#include "base/program/dynlib.h"

#include <curl/curl.h>

#define HX_CURL_CALLS(X)                                                                                               \
    X(global_init)                                                                                                     \
    X(slist_append)                                                                                                    \
    X(slist_free_all)                                                                                                  \
    X(easy_init)                                                                                                       \
    X(easy_setopt)                                                                                                     \
    X(easy_getinfo)                                                                                                    \
    X(easy_strerror)                                                                                                   \
    X(easy_pause)                                                                                                      \
    X(easy_cleanup)                                                                                                    \
    X(multi_init)                                                                                                      \
    X(multi_setopt)                                                                                                    \
    X(multi_socket_action)                                                                                             \
    X(multi_add_handle)                                                                                                \
    X(multi_remove_handle)                                                                                             \
    X(multi_perform)                                                                                                   \
    X(multi_poll)                                                                                                      \
    X(multi_wakeup)                                                                                                    \
    X(multi_info_read)                                                                                                 \
    X(multi_cleanup)                                                                                                   \
    X(url)                                                                                                             \
    X(url_set)                                                                                                         \
    X(url_get)                                                                                                         \
    X(url_strerror)                                                                                                    \
    X(url_cleanup)                                                                                                     \
    X(free)

typedef struct {
#define X(name) __typeof__(curl_##name) *(name);
    HX_CURL_CALLS(X)
#undef X
} hx_libcurl;

/* Returns the same table each time, from any thread; never unloaded. NULL with a sentence in `error`: it is missing. */
const hx_libcurl *hx_libcurl_load(hx_error_text error) HX_MUST_USE;

#endif
