/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of schemas.def as JSON Schema. A mistake in a row is a bug of ours, which every use of the document
 * finds. */
#ifndef HX_ADMIN_OPENAPI_SCHEMA_H
#define HX_ADMIN_OPENAPI_SCHEMA_H

#include "base/memory/buf.h"

/* One item of a row's members: `name type` or `name! type`. */
typedef struct {
    hx_slice name, type;
    bool is_required;
} hx_schema_member;

/* Goes over members, with those that +Name adds. */
typedef struct {
    hx_slice members, after; /* `after`: what follows those of +Name */
} hx_schema_walk;

hx_schema_walk hx_schema_walk_over(const char *members);
/* False at the end. */
bool hx_schema_next(hx_schema_walk *walk, hx_schema_member *out);
/* Whether the schema `name` has a member that is always there. */
bool hx_schema_has_required(hx_slice name);
/* The text of the schema `name`. */
const char *hx_schema_text(hx_slice name);
/* The member `name` (NULL: an item of an array): the schema of a type. */
void hx_schema_put_type(hx_buf *out, const char *name, hx_slice type);
/* A member's name that is no C string; its value follows. */
void hx_schema_put_name(hx_buf *out, hx_slice name);
/* The member `schemas`: all of them, one a line. */
void hx_schema_put_all(hx_buf *out);

#endif
