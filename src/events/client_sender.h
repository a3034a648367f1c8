/* SPDX-License-Identifier: Apache-2.0 */
/* Sends attempts by net/client. */
#ifndef HX_EVENTS_CLIENT_SENDER_H
#define HX_EVENTS_CLIENT_SENDER_H

#include "events/sender.h"
#include "net/client/client.h"

hx_sender hx_sender_by_client(hx_client *client);

#endif
