/* SPDX-License-Identifier: Apache-2.0 */
/* Reads lines of three words in hexadecimal, a JSON text, a pointer and a wanted text, and answers each with a line:
 * the value that the pointer leads to, in hexadecimal, and 1 or 0 for whether it is the wanted one; or `!` when there
 * is none. test_json_pointer.py compares that with Python. */
#include "base/check.h"
#include "base/hex.h"
#include "core/json/json.h"

#include <stdio.h>
#include <stdlib.h>

/* Each word has memory of just its size, so that a sanitizer sees a step too far. */
static char *decode(hx_slice hex)
{
    size_t len = hex.len / 2;
    char *bytes = malloc(len > 0 ? len : 1);
    HX_CHECK(bytes != NULL);
    for (size_t i = 0; i < len; i++) bytes[i] = (char)hx_hex_byte(hex.ptr + 2 * i);
    return bytes;
}

int main(void)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t len;
    while ((len = getline(&line, &cap, stdin)) > 0) {
        hx_slice rest = {line, (size_t)len - 1}, word, value, words[3];
        char *memory[3];
        for (int i = 0; i < 3; i++) {
            bool there = hx_slice_next(&rest, ' ', &word);
            HX_CHECK(there);
            memory[i] = decode(word);
            words[i] = (hx_slice){memory[i], word.len / 2};
        }
        if (hx_json_pointer(words[0], words[1], &value)) {
            for (size_t i = 0; i < value.len; i++) (void)printf("%02x", (unsigned char)value.ptr[i]);
            (void)printf(" %d\n", hx_json_value_is(value, words[2]));
        } else {
            (void)puts("!");
        }
        for (int i = 0; i < 3; i++) free(memory[i]);
    }
    free(line);
    return ferror(stdin) || fflush(stdout) != 0;
}
