/* SPDX-License-Identifier: Apache-2.0 */
/* libpq, loaded when it is first needed: it loads some twenty other libraries (Kerberos, LDAP), which every start on an
 * embedded store would pay for. Its header is used as it is; only the calls go through a table. */
#ifndef HX_STORE_POSTGRES_LIBPQ_H
#define HX_STORE_POSTGRES_LIBPQ_H

#include "base/program/dynlib.h"

#include <libpq-fe.h>

#define HX_LIBPQ_CALLS(X)                                                                                              \
    X(backendPID)                                                                                                      \
    X(clear)                                                                                                           \
    X(conninfo)                                                                                                        \
    X(conninfoFree)                                                                                                    \
    X(conninfoParse)                                                                                                   \
    X(connectPoll)                                                                                                     \
    X(connectStartParams)                                                                                              \
    X(connectdbParams)                                                                                                 \
    X(consumeInput)                                                                                                    \
    X(enterPipelineMode)                                                                                               \
    X(errorMessage)                                                                                                    \
    X(exec)                                                                                                            \
    X(execParams)                                                                                                      \
    X(finish)                                                                                                          \
    X(flush)                                                                                                           \
    X(freemem)                                                                                                         \
    X(getResult)                                                                                                       \
    X(getisnull)                                                                                                       \
    X(getlength)                                                                                                       \
    X(getvalue)                                                                                                        \
    X(isBusy)                                                                                                          \
    X(nfields)                                                                                                         \
    X(notifies)                                                                                                        \
    X(ntuples)                                                                                                         \
    X(pipelineSync)                                                                                                    \
    X(resultErrorField)                                                                                                \
    X(resultStatus)                                                                                                    \
    X(sendQueryParams)                                                                                                 \
    X(serverVersion)                                                                                                   \
    X(setNoticeProcessor)                                                                                              \
    X(setNoticeReceiver)                                                                                               \
    X(setnonblocking)                                                                                                  \
    X(socket)                                                                                                          \
    X(status)

typedef struct {
#define X(name) __typeof__(PQ##name) *(name);
    HX_LIBPQ_CALLS(X)
#undef X
} hx_libpq;

/* Returns the same table each time, from any thread; never unloaded. NULL with a sentence in `error`: it is missing. */
const hx_libpq *hx_libpq_load(hx_error_text error) HX_MUST_USE;

/* Explains libpq's message about a URL that can't be read, and frees it. */
void hx_libpq_explain_url(const hx_libpq *pq, char *message, char *out, size_t bytes);

#endif
