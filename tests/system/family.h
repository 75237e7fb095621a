// Programs that share with each other whatever programs of a user can share: device memory by a
// handle and by a descriptor, pinned memory, an event. In children only.

#ifndef FRMPS_TESTS_SYSTEM_FAMILY_H
#define FRMPS_TESTS_SYSTEM_FAMILY_H

#include <stdint.h>

#include "tests/system/program.h"

#define FAMILY 2

/* Words of the memory that they share by a handle, which is set before they start: 66 MiB, which
 * are more than is copied at a time. */
extern uint64_t family_words;

/* The first exports, the second imports. */
struct family {
	struct child members[FAMILY];
};

/**
 * Two children that share, and a third part each of their own. At each order a member looks at each
 * byte of what they share, counts there, and reports; a member that is ordered once more than
 * @rounds ends.
 */
struct family family_begin(int rounds);
/** The same, but they work all the time, report each round, and end at an order. */
struct family family_begin_busy(void);
/** Both do their next step, one after the other, and the second sees what the first has done. */
void family_see_it_work(const struct family *family);
/** True if the service shows both in that state. */
bool family_is_in(const struct service *service, const struct family *family, const char *state);
/** Ends them. Exit statuses: 0 it is all there and works, 2 it is not, 3 told an error. Checks for
 * 0. */
void family_end(struct family *family);

/** A child that has a session; at an order it imports what the first has exported, looks at it,
 * reports and ends. Starts before the family. */
struct child family_expect_late(void);

#endif
