/* SPDX-License-Identifier: Apache-2.0 */
/* Events, endpoints and deliveries as clients of the API see them. */
#ifndef HX_ADMIN_EVENTS_VIEWS_H
#define HX_ADMIN_EVENTS_VIEWS_H

#include "core/event/delivery.h"
#include "core/event/endpoint.h"
#include "store/items.h"

#define HX_EVENT_SUMMARY_BYTES 1024u /* of one event that was published: its texts are plain ASCII */

/* An event as it is shown. One that was received has its application as its one recipient, and the id by which it is
 * found: of two with the same id, the one that is held has a part of its hash behind it. */
bool hx_view_decode_event(const hx_item *item, hx_arena *arena, hx_event *event) HX_MUST_USE;
/* {"id", "accepted_at", "recipients"}: the answer to publishing it. */
void hx_view_published(hx_buf *out, const hx_event *event);
/* The members of an event, and its data where it is wanted. */
void hx_view_event(hx_buf *out, const hx_event *event, bool with_data);
/* An object; nothing where the item is malformed. */
void hx_view_event_item(hx_buf *out, const hx_item *item, hx_arena *arena);
void hx_view_endpoint_item(hx_buf *out, const hx_item *item, hx_arena *arena); /* nothing for one that was deleted */
/* The most that each takes. */
size_t hx_view_event_bytes(const hx_item *item);
size_t hx_view_endpoint_bytes(const hx_item *item);
size_t hx_view_delivery_bytes(const hx_item *item);
/* The event's id, in its key: "e/TENANT/ID", "i/SOURCE/ID". */
hx_slice hx_view_event_id(hx_slice key);
/* An object; {"state": "absent"} where there is no item yet, nothing for the mark of a stream. */
void hx_view_delivery_item(hx_buf *out, const hx_item *item, hx_arena *arena);
/* The members of an endpoint, without its secrets. */
void hx_view_endpoint(hx_buf *out, const hx_endpoint *endpoint);
#define HX_VIEW_ENDPOINT_BYTES (2u * HX_ENDPOINT_META_MAX)

#endif
