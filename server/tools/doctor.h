// frmpsctl doctor: looks at the machine as the service and its programs find it, and says of each
// thing whether it is right, and if not, what to do. Changes nothing. One thread; blocks for as
// long as the driver takes to start.

#ifndef FRMPS_SERVER_TOOLS_DOCTOR_H
#define FRMPS_SERVER_TOOLS_DOCTOR_H

#include <stdbool.h>
#include <stdio.h>

struct doctor {
	const char *root;   /* in front of files of the machine: ""; tests have a folder */
	const char *socket; /* of the service */
	const char *server; /* path of frmps-server, which is asked about the driver; NULL: it is not found */
	bool json;
	FILE *out;
};

/** Prints a line, or a JSON object, for each thing. Return: 0 if there is no error (warnings are
 * none), else 1 */
int doctor_run(const struct doctor *doctor);

#endif
