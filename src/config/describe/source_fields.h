/* SPDX-License-Identifier: Apache-2.0 */
/* A source of the inbox in words and as JSON, for `hapax check`. */
#ifndef HX_CONFIG_DESCRIBE_SOURCE_FIELDS_H
#define HX_CONFIG_DESCRIBE_SOURCE_FIELDS_H

#include "config/config.h"

/* What is verified, such as "signed by stripe, at most 5m ago". */
const char *hx_describe_verified(const hx_source *source, hx_arena *arena);
/* Lines: how duplicates are recognised, where events go, and what is promised. */
const char *hx_describe_source(const hx_source *source, hx_arena *arena);
/* Lines about `events`. */
const char *hx_describe_events(const hx_config_events *events, hx_arena *arena);
/* Writes an object with every option. Two sources with the same text are the same, but for their secrets. */
void hx_describe_source_json(const hx_source *source, hx_buf *out);

#endif
