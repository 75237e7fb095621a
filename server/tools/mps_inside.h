// Common readers of the service's status, for the two grammars of nvidia-cuda-mps-control (mps.c,
// mps3.c). Single thread.

#ifndef FRMPS_SERVER_TOOLS_MPS_INSIDE_H
#define FRMPS_SERVER_TOOLS_MPS_INSIDE_H

#include <jansson.h>
#include <stdbool.h>

#include "server/tools/command.h"

/* Room for a device's place on the bus. */
#define MPS_PCI 24
/* Room for a number as text. */
#define MPS_NUMBER 24

/** Prints why a verb is not done. Return: exit code */
int mps_refuse(const struct call *call, const char *format, ...) __attribute__((format(printf, 2, 3)));

/** The service's status (server/control/status.c), the caller's; NULL with *ret_code after an error
 * line. */
json_t *mps_status(const struct call *call, int *ret_code);
const char *mps_uuid(const json_t *root);
/** The number of the device that a status is of. Return: the text */
const char *mps_number(const json_t *root, char text[MPS_NUMBER]);
void mps_describe_pci(const json_t *root, char text[MPS_PCI]);

/** Return: the process of the executor that serves a domain; 0: there is none, or nobody's programs
 * yet */
long long mps_server_of(const json_t *domain);
/** ACTIVE, INITIALIZING or FAULT. */
const char *mps_state_of(const json_t *root, const json_t *domain);

/** True if a row of a domain's clients is a client: a program whose process has ended is none. */
bool mps_is_client(const json_t *client);
/** The number of a process's PID namespace; "-" if the caller may not see the namespace. @size: 24
 * at least */
void mps_describe_namespace(long long pid, char *text, size_t size);
bool mps_is_number(const char *text, long long number);

/** Ends a session and prints 0. Return: exit code */
int mps_terminate(const struct call *call, long long session);

#endif
