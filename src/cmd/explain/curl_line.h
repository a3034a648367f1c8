/* SPDX-License-Identifier: Apache-2.0 */
/* A request as curl would send it: from a whole command line, as browsers copy it ("Copy as cURL"), or from curl's
 * flags one by one. Nothing is sent. What isn't understood is an error that names it, never left out: a request that is
 * explained must be the one that would be sent. */
#ifndef HX_CMD_EXPLAIN_CURL_LINE_H
#define HX_CMD_EXPLAIN_CURL_LINE_H

#include "base/memory/buf.h"

#define HX_CURL_LINE_BYTES_MAX (4u * 1024u * 1024u)
#define HX_CURL_BODY_BYTES_MAX (64u * 1024u * 1024u)
#define HX_CURL_WORDS_MAX 2048u
#define HX_CURL_HEADERS_MAX 256u

/* Splits a line into words as a shell does: '…', "…", $'…', backslashes, lines that go on. Where a shell would do more
 * than that (variables, pipes, commands in the line) there is an error. False: *error is a sentence about it. */
bool hx_shell_split(hx_slice line, hx_arena *arena, hx_slice **words, size_t *count, hx_slice *error) HX_MUST_USE;

typedef struct {
    hx_arena *arena;
    hx_slice error; /* a sentence; empty: all is well so far */
    hx_slice method, url;
    hx_slice user, bearer, cookie, agent, referer;
    hx_slice headers[HX_CURL_HEADERS_MAX]; /* as they were given: "Name: value", "Name:" or "Name;" */
    size_t header_count;
    hx_buf data;
    bool has_data, is_json, is_form, is_upload;
    bool get, head, globs_off;
    bool stdin_used; /* by the line itself: no body can come from there */
} hx_curl;

void hx_curl_init(hx_curl *curl, hx_arena *arena);
/* One of curl's flags by its long name without dashes ("data-raw"), or "url". `value` is HX_EMPTY for a switch. False:
 * curl->error. */
bool hx_curl_take(hx_curl *curl, hx_slice flag, hx_slice value) HX_MUST_USE;
/* The words of a command line; `curl` itself may come first. */
bool hx_curl_take_words(hx_curl *curl, const hx_slice *words, size_t count) HX_MUST_USE;
/* Appends the request, head and body, as HTTP/1.1. */
bool hx_curl_write(hx_curl *curl, hx_buf *out) HX_MUST_USE;

#endif
