// The last step of an adoption (adopt.c). Daemon, loop thread only.

#ifndef FRMPS_SERVER_ADOPT_RESUME_H
#define FRMPS_SERVER_ADOPT_RESUME_H

struct daemon;

/** Everything is as it was recorded, and what was under way has been repeated: all of it goes
 * on. */
void resume(struct daemon *daemon);

#endif
