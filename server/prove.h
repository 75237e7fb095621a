// The proof that the service's own handling of a kernel's exception works with this driver and
// device: once, as the service starts, by a throw-away process of the same kind as an executor
// (backend/trial.h).

#ifndef FRMPS_SERVER_PROVE_H
#define FRMPS_SERVER_PROVE_H

#include <stdint.h>

#include "server/role.h"

struct backend_ops;

/**
 * Starts the process and waits for its verdict, which becomes heritage->proof. One that has not
 * said it in time is killed, and nothing is proved.
 * Where the device cannot be opened, another process is started, for as long. RUN_AS_USER is tried
 * as an ordinary user; where only root proves it, heritage->run_as is RUN_AS_SERVICE afterwards.
 * @program: path of frmps-server
 * @patience_ms: for one of them
 */
void prove_ask(const char *program, struct heritage *heritage, unsigned patience_ms);

/**
 * The child: says its verdict on the descriptor.
 * @user: as whom it handles faults once the device is open; 0: as it was started
 * Return: exit code
 */
int prove_main(const struct backend_ops *ops, int device, uint32_t user, int answer_fd);

#endif
