/* SPDX-License-Identifier: Apache-2.0 */
/* Operations as JSON, for the responses of the admin API. */
#ifndef HX_ADMIN_VIEWS_H
#define HX_ADMIN_VIEWS_H

#include "base/memory/buf.h"
#include "store/store.h"

/* The most that one record's view takes: four texts of 255 bytes, each of which may be escaped as \u00XX. */
#define HX_VIEW_RECORD_BYTES 8192u

/* One version of an operation, without the headers and body of its response. */
void hx_view_record(hx_buf *out, const hx_record *record);
/* The member `name`: an array of records, one a line. */
void hx_view_records(hx_buf *out, const char *name, const hx_record *records, size_t count);
/* The most that the lines of a text take as an array, if every byte is escaped. */
#define HX_VIEW_LINES_BYTES(len) (6u * (len) + 64u)

#endif
