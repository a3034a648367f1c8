/* SPDX-License-Identifier: Apache-2.0 */
#include "base/crc32c.h"
#include "core/operation/record.h"

#include <stdarg.h>
#include <stdint.h>
#include <setjmp.h>
#include <string.h>
#include <cmocka.h>

static hx_record sample(void)
{
    hx_record record = {.epoch = 7,
                        .state = HX_COMPLETED,
                        .from_state = HX_PROCESSING,
                        .created_at = 1771502400123,
                        .changed_at = 1771502400456,
                        .expires_at = 1771588800456,
                        .tombstone_until = 1774094400456,
                        .owner = 42,
                        .rule_version = 9,
                        .attempt = 1,
                        .route = HX_LIT("refunds"),
                        .correlation = HX_LIT("4bf92f3577b34da6a3ce929d0e0e4736"),
                        .reason = HX_LIT(""),
                        .result = HX_LIT("rf_123"),
                        .answer = {.status = 201,
                                   .retained = true,
                                   .headers = HX_LIT("Content-Type: application/json\r\n"),
                                   .body = HX_LIT("{\"id\":\"rf_123\"}")}};
    memset(record.op.bytes, 0xab, sizeof record.op.bytes);
    memset(record.fingerprint.bytes, 0xcd, sizeof record.fingerprint.bytes);
    memset(record.proof.bytes, 0xef, sizeof record.proof.bytes);
    for (uint64_t i = 0; i < HX_PART_COUNT; i++) record.parts[i] = i * 1001;
    return record;
}

/* Head and answer one after the other, as a store keeps them. */
static hx_slice whole(const hx_record *record, hx_buf *buf)
{
    hx_buf_init(buf, NULL, 65536);
    hx_record_encode(record, buf);
    hx_buf_put(buf, record->answer.headers);
    hx_buf_put(buf, record->answer.body);
    return hx_buf_slice(buf);
}

static void what_is_written_is_read_back(void **state)
{
    (void)state;
    hx_record record = sample(), read;
    hx_buf buf;
    hx_slice bytes = whole(&record, &buf);
    assert_int_equal(hx_record_decode(bytes, &read), HX_RECORD_OK);
    assert_true(hx_op_eq(&read.op, &record.op));
    assert_true(read.epoch == 7 && read.state == HX_COMPLETED && read.from_state == HX_PROCESSING);
    assert_true(read.created_at == record.created_at && read.changed_at == record.changed_at);
    assert_true(read.expires_at == record.expires_at && read.tombstone_until == record.tombstone_until);
    assert_true(read.owner == 42 && read.rule_version == 9 && read.attempt == 1);
    assert_memory_equal(read.parts, record.parts, sizeof record.parts);
    assert_true(hx_digest_eq(&read.proof, &record.proof));
    assert_true(hx_slice_eq(read.route, record.route) && hx_slice_eq(read.result, record.result));
    assert_true(hx_slice_eq(read.correlation, record.correlation) && read.reason.len == 0);
    assert_true(read.answer.status == 201 && read.answer.retained);
    assert_true(hx_slice_eq(read.answer.headers, record.answer.headers));
    assert_true(hx_slice_eq(read.answer.body, record.answer.body));
    hx_buf_free(&buf);
}

static void a_flipped_bit_anywhere_is_noticed(void **state)
{
    (void)state;
    hx_record record = sample(), read;
    hx_buf buf;
    hx_slice bytes = whole(&record, &buf);
    for (size_t i = 0; i < bytes.len; i++) {
        for (int bit = 0; bit < 8; bit++) {
            buf.data[i] = (char)(buf.data[i] ^ (1 << bit));
            assert_int_not_equal(hx_record_decode(bytes, &read), HX_RECORD_OK);
            buf.data[i] = (char)(buf.data[i] ^ (1 << bit));
        }
    }
    for (size_t len = 0; len < bytes.len; len++)
        assert_int_not_equal(hx_record_decode(hx_slice_first(bytes, len), &read), HX_RECORD_OK);
    hx_buf_free(&buf);
}

static void another_format_is_told_from_a_damaged_one(void **state)
{
    (void)state;
    hx_record record = sample(), read;
    hx_buf buf;
    hx_slice bytes = whole(&record, &buf);
    buf.data[0] = 4;
    assert_int_equal(hx_record_decode(bytes, &read), HX_RECORD_NEWER);
    buf.data[0] = 2;
    assert_int_equal(hx_record_decode(bytes, &read), HX_RECORD_OLDER);
    hx_buf_free(&buf);
}

static void sealing_gives_the_epoch_and_the_checksum(void **state)
{
    (void)state;
    hx_record record = sample(), read;
    hx_buf buf;
    size_t head_len, answer_len;
    hx_slice bytes = whole(&record, &buf);
    assert_int_equal(hx_record_decode_head(bytes, &read, &head_len, &answer_len), HX_RECORD_OK);
    assert_int_equal(answer_len, record.answer.headers.len + record.answer.body.len);
    hx_record_seal(buf.data, head_len, 99);
    assert_int_equal(hx_record_decode(bytes, &read), HX_RECORD_OK);
    assert_true(read.epoch == 99);
    hx_buf_free(&buf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read_back),
        cmocka_unit_test(a_flipped_bit_anywhere_is_noticed),
        cmocka_unit_test(another_format_is_told_from_a_damaged_one),
        cmocka_unit_test(sealing_gives_the_epoch_and_the_checksum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
