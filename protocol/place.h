// The place of the service's socket: a single rule for the library, frmps-run, frmpsctl,
// frmps-exporter and nvidia-cuda-mps-control. A variable names the only place, so a program with
// the variable never reaches another service by chance. Without a variable, the first existing
// socket counts, first in the service's own places and then in those of stock MPS. No state; any
// thread.

#ifndef FRMPS_PROTOCOL_PLACE_H
#define FRMPS_PROTOCOL_PLACE_H

#include <stdbool.h>

/* The socket of root's service without a configuration. */
#define PLACE_SYSTEM "/run/frmps/frmps.sock"
/* The socket's name in the folder of CUDA_MPS_PIPE_DIRECTORY or XDG_RUNTIME_DIR. */
#define PLACE_NAME "frmps.sock"
/* More than the address of a socket holds: no socket has a path that is cut. */
#define PLACE_BYTES 512

/* The most devices of one service. */
#define PLACE_DEVICES 64u

/* Outcome: users other than root and this one can put a socket into $CUDA_MPS_PIPE_DIRECTORY. */
#define PLACE_E_UNTRUSTED 1

/**
 * Finds the service's socket: $FRMPS_SOCKET, else frmps.sock in $CUDA_MPS_PIPE_DIRECTORY, else the
 * first existing one of PLACE_SYSTEM, $XDG_RUNTIME_DIR/frmps.sock, /run/nvidia-mps/frmps.sock and
 * /tmp/nvidia-mps/frmps.sock (PLACE_SYSTEM without any). A folder of stock MPS counts only while
 * socket_directory_is_trusted().
 * @path: written in any case; there may be no socket
 * Return: 0 or PLACE_E_UNTRUSTED
 */
int place_find(char path[PLACE_BYTES]);

/**
 * As place_find(), for one of the service's devices. @number: from 0
 */
int place_find_device(unsigned number, char path[PLACE_BYTES]);

/**
 * The place at which a service in the role of stock MPS puts its socket: $FRMPS_SOCKET, else
 * frmps.sock in $CUDA_MPS_PIPE_DIRECTORY, else in the first of /run/nvidia-mps and /tmp/nvidia-mps
 * that exists and is trusted. Without either, root makes the former and other users the latter. So
 * place_find() of a program with the same environment finds the socket, unless another service
 * runs.
 */
void place_begin(char path[PLACE_BYTES]);

/**
 * The socket of one of a service's devices: the first device has the service's own name, each other
 * one has its number behind that name.
 * @first: the service's socket; @number: from 0
 * Return: false if the name is too long for PLACE_BYTES
 */
bool place_of_device(const char *first, unsigned number, char path[PLACE_BYTES]);

/** As place_find(), with other folders of stock MPS, for tests. @folders: two */
int place_find_in(const char *const folders[2], char path[PLACE_BYTES]);
void place_begin_in(const char *const folders[2], char path[PLACE_BYTES]);

#endif
