// The last step of an adoption (adopt.c). Daemon, loop thread only.

#ifndef FRMPS_SERVER_ADOPT_RESUME_H
#define FRMPS_SERVER_ADOPT_RESUME_H

struct daemon;

/** Resumes everything that was under way, from the recorded state and after the repetitions. */
void resume(struct daemon *daemon);

#endif
