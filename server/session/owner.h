// The owner of a user. A person may have many users: /etc/subuid gives users ranges of subordinate
// users, for containers. The service divides shares between owners: otherwise a person with 65536
// users has 65536 shares. Rights go by the user alone. Daemon, loop thread only.

#ifndef FRMPS_SERVER_SESSION_OWNER_H
#define FRMPS_SERVER_SESSION_OWNER_H

#include <sys/types.h>

/**
 * The user to whom the subordinate range around `uid` belongs; if /etc/passwd does not have that
 * user, the first of the range. A user in no range is his own owner.
 */
uid_t owner_of(uid_t uid);
/** Reads the ranges again if the file has changed. */
void owner_refresh(void);

/** For tests: reads these files from now on; NULL: the machine's files. */
void owner_read_from(const char *subuid, const char *passwd);

#endif
