/* SPDX-License-Identifier: Apache-2.0 */
/* A number is read as significant digits, without zeros at either end, and the place of its decimal point:
 * 0.d1d2…dn × 10^point. ECMAScript (7.1.12.1, Number::toString) lays these out as
 *     n <= point <= 21     digits, then zeros                      100, 123000
 *     0 < point <= 21      the point between digits                1.5, 12.25
 *     -6 < point <= 0      0. and zeros before the digits          0.000001
 *     else                 an exponent, always signed              1e+21, 1.5e-7
 * That layout is one-to-one for any number of digits, so it also serves those that no double holds. */
#include "core/json/number.h"

#include "base/check.h"

#include <stdio.h>

#define POINT_MAX 21
#define POINT_MIN (-6)
#define EXPONENT_TEXT_BYTES 20 /* e, sign, 16 digits, NUL */

typedef struct {
    const char *at; /* the digits in the text, perhaps with a decimal point among them */
    const char *end;
    size_t digits;
    int64_t point;
    bool negative;
} decimal;

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool read_exponent(const char *at, const char *end, int64_t *exponent)
{
    bool negative = *at == '-';
    if (*at == '-' || *at == '+') at++;
    int64_t value = 0;
    for (; at < end; at++) {
        value = value * 10 + (*at - '0');
        if (value > HX_NUMBER_EXPONENT_MAX) return false;
    }
    *exponent = negative ? -value : value;
    return true;
}

/* digits == 0 means zero. */
static bool read_decimal(hx_slice text, decimal *out)
{
    const char *at = text.ptr, *end = text.ptr + text.len;
    *out = (decimal){.negative = *at == '-'};
    if (out->negative) at++;

    const char *first = NULL, *last = NULL; /* non-zero digits */
    const char *dot = NULL, *start = at;
    for (; at < end && (is_digit(*at) || *at == '.'); at++) {
        if (*at == '.') {
            dot = at;
        } else if (*at != '0') {
            if (!first) first = at;
            last = at;
        }
    }
    HX_CHECK(at > start);
    const char *whole_end = dot ? dot : at;
    int64_t exponent = 0;
    if (at < end && !read_exponent(at + 1, end, &exponent)) return false;
    if (!first) return true;

    out->at = first;
    out->end = last + 1;
    bool dot_among = dot && dot > first && dot < last;
    out->digits = (size_t)(out->end - first) - (dot_among ? 1 : 0);
    /* After the point the first digit is at .d1, .0d1 and so on: places 0, -1, … */
    out->point = exponent + (first < whole_end ? whole_end - first : whole_end + 1 - first);
    return true;
}

/* The `count` digits that follow `*at`, which moves behind them. */
static void put_digits(char **to, const char **at, size_t count)
{
    while (count > 0) {
        if (**at != '.') {
            *(*to)++ = **at;
            count--;
        }
        (*at)++;
    }
}

static void put_zeros(char **to, int64_t count)
{
    for (; count > 0; count--) *(*to)++ = '0';
}

bool hx_number_canonical(hx_slice text, hx_buf *out)
{
    decimal number;
    if (!read_decimal(text, &number) || !hx_buf_reserve(out, text.len + HX_NUMBER_GROWTH_BYTES)) return false;
    char *to = out->data + out->len;
    const char *at = number.at;
    int64_t digits = (int64_t)number.digits, point = number.point;

    if (digits == 0) {
        *to++ = '0'; /* -0 too */
        out->len += 1;
        return true;
    }
    if (number.negative) *to++ = '-';
    if (digits <= point && point <= POINT_MAX) {
        put_digits(&to, &at, number.digits);
        put_zeros(&to, point - digits);
    } else if (0 < point && point <= POINT_MAX) {
        put_digits(&to, &at, (size_t)point);
        *to++ = '.';
        put_digits(&to, &at, (size_t)(digits - point));
    } else if (POINT_MIN < point && point <= 0) {
        *to++ = '0';
        *to++ = '.';
        put_zeros(&to, -point);
        put_digits(&to, &at, number.digits);
    } else {
        put_digits(&to, &at, 1);
        if (digits > 1) {
            *to++ = '.';
            put_digits(&to, &at, number.digits - 1);
        }
        to += snprintf(to, EXPONENT_TEXT_BYTES, "e%+lld", (long long)(point - 1));
    }
    size_t written = (size_t)(to - (out->data + out->len));
    HX_CHECK(written <= text.len + HX_NUMBER_GROWTH_BYTES);
    out->len += written;
    return true;
}

static char next_digit(const char **at)
{
    if (**at == '.') (*at)++;
    return *(*at)++;
}

bool hx_number_same(hx_slice a, hx_slice b)
{
    decimal x, y;
    if (!read_decimal(a, &x) || !read_decimal(b, &y) || x.digits != y.digits) return false;
    if (x.digits == 0) return true; /* -0 is 0 */
    if (x.point != y.point || x.negative != y.negative) return false;
    for (size_t i = 0; i < x.digits; i++)
        if (next_digit(&x.at) != next_digit(&y.at)) return false;
    return true;
}
