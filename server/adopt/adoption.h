// Makes sessions from records, for the files of this room: from records of an earlier life of the
// daemon, or of a session from another device. Daemon, loop thread only.

#ifndef FRMPS_SERVER_ADOPT_ADOPTION_H
#define FRMPS_SERVER_ADOPT_ADOPTION_H

#include <stdbool.h>
#include <stdint.h>

#include "server/adopt/inventory.h"
#include "server/adopt/repeat.h"

struct daemon;
struct record;
struct worker;

struct adoption {
	struct daemon *daemon;
	struct inventory inventory;
	struct repetitions repetitions;
	bool crashed; /* the previous daemon was not killed by hand */
};

/** The keeper or executor with that number; NULL: there is none. */
struct worker *adoption_worker(const struct daemon *daemon, uint32_t number);

/** Makes a session, or one of its holdings, from a record; drops a record that names what is not
 * there. */
void adoption_read_session(struct adoption *adoption, const struct record *record);
void adoption_read_holding(struct adoption *adoption, const struct record *record);

#endif
