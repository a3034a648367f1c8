/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/refunds/ledger.h"

#include "base/check.h"
#include "core/json/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Room for one more row; doubled when a power of two is reached. NULL when the books are full. */
static void *row_for(void *rows, unsigned count, size_t row_bytes)
{
    if (count >= HX_LEDGER_ROWS_MAX) return NULL;
    if ((count & (count - 1)) != 0) return rows;
    void *more = realloc(rows, (count == 0 ? 1 : (size_t)count * 2) * row_bytes);
    if (!more) hx_fatal(HX_EXIT_BUG, "out of memory (%u rows)", count);
    return more;
}

static void copy_text(char *to, size_t to_bytes, hx_slice from)
{
    size_t len = from.len < to_bytes - 1 ? from.len : to_bytes - 1;
    if (len > 0) memcpy(to, from.ptr, len);
    to[len] = '\0';
}

static void enter(hx_ledger *ledger, const char *account, int64_t amount, const char *what, unsigned number)
{
    ledger->entries = row_for(ledger->entries, ledger->entry_count, sizeof *ledger->entries);
    hx_entry *entry = &ledger->entries[ledger->entry_count++];
    *entry = (hx_entry){.account = account, .amount = amount};
    (void)snprintf(entry->reason, sizeof entry->reason, "%s_%u", what, number);
}

static bool has_room(const hx_ledger *ledger)
{
    return ledger->entry_count + 2 <= HX_LEDGER_ROWS_MAX && ledger->charge_count < HX_LEDGER_ROWS_MAX &&
           ledger->refund_count < HX_LEDGER_ROWS_MAX;
}

hx_charge *hx_ledger_charge(hx_ledger *ledger, int64_t amount, hx_slice currency, hx_ms now)
{
    if (!has_room(ledger)) return NULL;
    ledger->charges = row_for(ledger->charges, ledger->charge_count, sizeof *ledger->charges);
    hx_charge *charge = &ledger->charges[ledger->charge_count++];
    *charge = (hx_charge){.number = ledger->charge_count, .amount = amount, .version = 1, .created_at = now};
    copy_text(charge->currency, sizeof charge->currency, currency);
    enter(ledger, "customer", amount, "charge ch", charge->number);
    enter(ledger, "merchant", -amount, "charge ch", charge->number);
    return charge;
}

hx_refund *hx_ledger_refund(hx_ledger *ledger, hx_charge *charge, int64_t amount, hx_slice key, hx_ms now)
{
    if (!has_room(ledger)) return NULL;
    ledger->refunds = row_for(ledger->refunds, ledger->refund_count, sizeof *ledger->refunds);
    hx_refund *refund = &ledger->refunds[ledger->refund_count++];
    *refund = (hx_refund){
        .number = ledger->refund_count, .charge = charge->number, .amount = amount, .version = 1, .created_at = now};
    copy_text(refund->key, sizeof refund->key, key);
    charge->refunded += amount;
    charge->version++;
    enter(ledger, "merchant", amount, "refund rf", refund->number);
    enter(ledger, "customer", -amount, "refund rf", refund->number);
    return refund;
}

bool hx_ledger_void_charge(hx_ledger *ledger, hx_charge *charge)
{
    if (charge->voided || charge->refunded > 0 || !has_room(ledger)) return false;
    charge->voided = true;
    charge->version++;
    enter(ledger, "merchant", charge->amount, "void ch", charge->number);
    enter(ledger, "customer", -charge->amount, "void ch", charge->number);
    return true;
}

bool hx_ledger_void_refund(hx_ledger *ledger, hx_refund *refund)
{
    if (refund->voided || !has_room(ledger)) return false;
    refund->voided = true;
    refund->version++;
    hx_charge *charge = &ledger->charges[refund->charge - 1];
    charge->refunded -= refund->amount;
    charge->version++;
    enter(ledger, "customer", refund->amount, "void rf", refund->number);
    enter(ledger, "merchant", -refund->amount, "void rf", refund->number);
    return true;
}

static bool number_of(hx_slice id, hx_slice prefix, unsigned count, unsigned *number)
{
    uint64_t value;
    if (!hx_slice_starts(id, prefix) || !hx_slice_to_u64(hx_slice_from(id, prefix.len), &value)) return false;
    if (value == 0 || value > count) return false;
    *number = (unsigned)value;
    return true;
}

hx_charge *hx_ledger_find_charge(hx_ledger *ledger, hx_slice id)
{
    unsigned number;
    return number_of(id, HX_LIT("ch_"), ledger->charge_count, &number) ? &ledger->charges[number - 1] : NULL;
}

hx_refund *hx_ledger_find_refund(hx_ledger *ledger, hx_slice id)
{
    unsigned number;
    return number_of(id, HX_LIT("rf_"), ledger->refund_count, &number) ? &ledger->refunds[number - 1] : NULL;
}

static void put(hx_buf *out, bool fits)
{
    (void)out;
    HX_CHECK(fits); /* the caller's buffer is made for all the rows there can be */
}

void hx_ledger_put_charge(hx_buf *out, const hx_charge *charge)
{
    char created[HX_RFC3339_BYTES];
    put(out,
        hx_buf_printf(out, "{\"id\":\"ch_%u\",\"amount\":%lld,\"refunded\":%lld,\"currency\":\"%s\",\"status\":\"%s\",",
                      charge->number, (long long)charge->amount, (long long)charge->refunded, charge->currency,
                      charge->voided ? "voided" : "succeeded"));
    put(out,
        hx_buf_printf(out, "\"created\":\"%.*s\",\"description\":", HX_FMT(hx_rfc3339(charge->created_at, created))));
    put(out, hx_json_escape(out, hx_slice_of(charge->description)));
    hx_buf_puts(out, "}");
}

void hx_ledger_put_refund(hx_buf *out, const hx_refund *refund)
{
    char created[HX_RFC3339_BYTES];
    put(out, hx_buf_printf(out,
                           "{\"id\":\"rf_%u\",\"charge_id\":\"ch_%u\",\"amount\":%lld,\"status\":\"%s\","
                           "\"created\":\"%.*s\"}",
                           refund->number, refund->charge, (long long)refund->amount,
                           refund->voided ? "voided" : "succeeded", HX_FMT(hx_rfc3339(refund->created_at, created))));
}

void hx_ledger_put_entries(hx_buf *out, const hx_ledger *ledger)
{
    int64_t sum = 0;
    hx_buf_puts(out, "{\"entries\":[");
    for (unsigned i = 0; i < ledger->entry_count; i++) {
        const hx_entry *entry = &ledger->entries[i];
        sum += entry->amount;
        put(out, hx_buf_printf(out, "%s\n  {\"account\":\"%s\",\"amount\":%lld,\"reason\":\"%s\"}", i > 0 ? "," : "",
                               entry->account, (long long)entry->amount, entry->reason));
    }
    put(out, hx_buf_printf(out, "],\n \"movements\":%u,\"refunds\":%u,\"balanced\":%s}\n", ledger->entry_count / 2,
                           ledger->refund_count, sum == 0 ? "true" : "false"));
}

void hx_ledger_free(hx_ledger *ledger)
{
    free(ledger->charges);
    free(ledger->refunds);
    free(ledger->entries);
    *ledger = (hx_ledger){0};
}
