/* SPDX-License-Identifier: Apache-2.0 */
/* Damage to a small log, one byte at a time: the store opens and all its answers are as they were, or it refuses to
 * open and says so, or it says of a single operation that its record can't be read. */
#ifndef HX_TESTS_CRASH_FLIPS_H
#define HX_TESTS_CRASH_FLIPS_H

/* Removes all that is in a folder, and the folder. */
void flips_empty_folder(const char *folder);

/* closed|killed flip|cut BITS PART PARTS STEP: over the log of a store that was closed, or whose process was killed;
 * flips BITS of each byte, or cuts each file off there; only each PARTSth offset, from PART on; of the bytes that are
 * zero only each STEPth. Prints counts, and FAIL lines. */
int flips_main(const char *folder, int argc, char **argv);

#endif
