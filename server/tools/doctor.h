// frmpsctl doctor: examines the machine from the view of the service and its programs, and reports
// for each item if it is right, and the remedy if not. Changes nothing. One thread; blocks for as
// long as the driver takes to start.

#ifndef FRMPS_SERVER_TOOLS_DOCTOR_H
#define FRMPS_SERVER_TOOLS_DOCTOR_H

#include <stdbool.h>
#include <stdio.h>

struct doctor {
	const char *root;   /* in front of files of the machine: ""; tests have a folder */
	const char *socket; /* of the service */
	const char *server; /* path of frmps-server, which asks the driver; NULL: not found */
	bool json;
	FILE *out;
};

/** Prints a line, or a JSON object, for each thing. Return: 0 if there is no error (warnings are
 * none), else 1 */
int doctor_run(const struct doctor *doctor);

#endif
