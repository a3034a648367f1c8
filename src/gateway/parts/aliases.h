/* SPDX-License-Identifier: Apache-2.0 */
/* The aliases of an operation: other names under which it may be stored.
 *
 *     names    former names of its route (`formerly`): the operation began under one of them
 *     buckets  neighbouring time buckets of its natural key: the operation began just before a boundary, and a retry
 *              just after it means the same operation
 *
 * Aliases are searched before anything is claimed (step locate); a natural key is also compared with its neighbours
 * once its claim is durable (step yield). A new operation always begins under the route's own name and in the current
 * bucket: where an adopted alias has gone, the request comes back to its own key, which is where others look for it.
 *
 * Where the store has to be asked, r->call is under way (HX_LOOKED_ASKING); the same function, called when it is back,
 * goes on from there. */
#ifndef HX_GATEWAY_PARTS_ALIASES_H
#define HX_GATEWAY_PARTS_ALIASES_H

#include "gateway/request.h"

typedef enum {
    HX_LOOKED_NOTHING,
    HX_LOOKED_FOUND, /* r->found is the record */
    HX_LOOKED_ASKING,
    HX_LOOKED_FAILED /* the store can't be reached */
} hx_looked;

/* Whether the request's operation can have aliases at all. */
bool hx_aliases_exist(const hx_request *r);
/* Looks for the operation under its aliases. Found: r->op and r->key are the alias's from now on. */
hx_looked hx_aliases_search(hx_request *r);
/* Reads the alias that r->op is by now once more. */
hx_looked hx_aliases_read_again(hx_request *r);
/* Makes r->op and r->key the request's own again. */
void hx_aliases_drop(hx_request *r);

/* Whether a claim of this request can collide with one in a neighbouring bucket. */
bool hx_aliases_may_collide(const hx_request *r);
/* Our claim is durable: looks for another one in a neighbouring bucket. */
hx_looked hx_aliases_find_rival(hx_request *r);
/* Our claim is released: r->op and r->key are the rival's from now on. */
void hx_aliases_adopt_rival(hx_request *r);

#endif
