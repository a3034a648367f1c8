/* SPDX-License-Identifier: Apache-2.0 */
/* The playbook's worked example as a small real application: charges, refunds, and the reverse of each, over HTTP. */
#ifndef HX_EXAMPLES_REFUNDS_APP_H
#define HX_EXAMPLES_REFUNDS_APP_H

#include "base/loop/loop.h"

/* Serves on `address` ("127.0.0.1:0" takes a free port) until SIGTERM or SIGINT; once it listens, writes the address
 * and a newline to `announce`. Returns an exit code. */
int hx_refunds_serve(hx_slice address, int announce);

#endif
