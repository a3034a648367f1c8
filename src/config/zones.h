/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HX_CONFIG_ZONES_H
#define HX_CONFIG_ZONES_H

#include "base/memory/arena.h"

struct hx_zone; /* core/time/zone.h */

/* Reads a time zone of the machine's database into the arena; NULL: it has none of that name. A hx_zone_finder. */
const struct hx_zone *hx_zones_find(void *arena, hx_slice name);

#endif
