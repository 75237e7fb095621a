// Whose a user is. A person may have many users: /etc/subuid gives ranges of subordinate ones to
// users, for containers. What the service shares out between users is shared out between owners:
// otherwise who has 65536 users has 65536 shares. Rights go by the user alone. Daemon, loop thread
// only.

#ifndef FRMPS_SERVER_SESSION_OWNER_H
#define FRMPS_SERVER_SESSION_OWNER_H

#include <sys/types.h>

/**
 * The user whose subordinate range a user is in; of who cannot be found in /etc/passwd, the first
 * of the range. Everybody else's owner is himself.
 */
uid_t owner_of(uid_t uid);
/** Reads the ranges again if the file has changed. */
void owner_refresh(void);

/** For tests: reads these files from now on; NULL: those of the machine. */
void owner_read_from(const char *subuid, const char *passwd);

#endif
