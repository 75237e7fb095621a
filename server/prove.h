// The proof that the service's own handling of a kernel's exception works with this driver and
// device: once, as the service starts, by a throw-away process of the same kind as an executor
// (backend/trial.h).

#ifndef FRMPS_SERVER_PROVE_H
#define FRMPS_SERVER_PROVE_H

#include <stdint.h>

#include "server/role.h"

struct backend_ops;

/**
 * Starts the process and waits for its verdict, which becomes heritage->proof. A process without a
 * verdict in time is killed, and nothing is proved. Where the device cannot be opened, another
 * process is started, for as long. RUN_AS_USER is tried as an ordinary user; if only root proves
 * containment, heritage->run_as becomes RUN_AS_SERVICE.
 * @program: path of frmps-server
 * @patience_ms: for each process
 */
void prove_ask(const char *program, struct heritage *heritage, unsigned patience_ms);

/**
 * The child: writes its verdict to the descriptor.
 * @user: for handling faults, once the device is open; 0: no change of user
 * Return: exit code
 */
int prove_main(const struct backend_ops *ops, int device, uint32_t user, int answer_fd);

#endif
