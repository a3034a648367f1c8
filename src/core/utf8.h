/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8 is base's: include base/utf8.h. */
#ifndef HX_CORE_UTF8_H
#define HX_CORE_UTF8_H

#include "base/utf8.h"

#endif
