// The daemon as a process. See daemon_main.c.

#ifndef FRMPS_SERVER_DAEMON_MAIN_H
#define FRMPS_SERVER_DAEMON_MAIN_H

struct config;
struct heritage;
struct legacy;

/** Runs the role until the service ends. @legacy: from the holder. Return: exit code of the
 * process. */
int daemon_main(const struct config *config, const struct heritage *heritage, const struct legacy *legacy);

#endif
