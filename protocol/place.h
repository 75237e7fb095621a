// Where programs and the service's tools meet the service: one rule for the library, frmps-run,
// frmpsctl, frmps-exporter and nvidia-cuda-mps-control. A variable that is set names the only
// place: who has set it never reaches another service by chance. Without one, the first socket that
// exists counts, of the service's own places and then of those of stock MPS. No state; any thread.

#ifndef FRMPS_PROTOCOL_PLACE_H
#define FRMPS_PROTOCOL_PLACE_H

/* Of a socket that root's service makes without a configuration. */
#define PLACE_SYSTEM "/run/frmps/frmps.sock"
/* Of a socket in the folder that CUDA_MPS_PIPE_DIRECTORY or XDG_RUNTIME_DIR names. */
#define PLACE_NAME "frmps.sock"
/* More than an address of a socket takes: what is cut off cannot be connected to. */
#define PLACE_BYTES 512

/* Outcome: others than root and this user can put a socket into $CUDA_MPS_PIPE_DIRECTORY. */
#define PLACE_E_UNTRUSTED 1

/**
 * Finds the service's socket: $FRMPS_SOCKET, else frmps.sock in $CUDA_MPS_PIPE_DIRECTORY, else the
 * first that exists of PLACE_SYSTEM, $XDG_RUNTIME_DIR/frmps.sock, /run/nvidia-mps/frmps.sock and
 * /tmp/nvidia-mps/frmps.sock (PLACE_SYSTEM if none does). A folder of stock MPS counts only while
 * socket_directory_is_trusted().
 * @path: written in any case; there may be no socket
 * Return: 0 or PLACE_E_UNTRUSTED
 */
int place_find(char path[PLACE_BYTES]);

/**
 * Says where a service that is started as stock MPS is puts its socket: $FRMPS_SOCKET, else
 * frmps.sock in $CUDA_MPS_PIPE_DIRECTORY, else in the first of /run/nvidia-mps and /tmp/nvidia-mps
 * that exists and is trusted. If neither is, root makes the former and everybody else the latter.
 * So place_find() of a program with the same environment finds it, where no other service runs.
 */
void place_begin(char path[PLACE_BYTES]);

/** The same rules for other folders of stock MPS, for tests. @folders: two */
int place_find_in(const char *const folders[2], char path[PLACE_BYTES]);
void place_begin_in(const char *const folders[2], char path[PLACE_BYTES]);

#endif
