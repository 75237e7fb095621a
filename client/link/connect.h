// The connection of a session: finds the service of its device, does the handshake, maps the
// regions and reserves the window of the address space. cuInit opens the session where the service
// has one device, else the first call that needs one on the device (start.h). The library never
// closes it: the kernel does that at exit, and the service notices.

#ifndef FRMPS_CLIENT_LINK_CONNECT_H
#define FRMPS_CLIENT_LINK_CONNECT_H

#include <stdbool.h>
#include <stdint.h>

#include "client/link/control.h"
#include "protocol/cuda_abi.h"
#include "shm/region.h"

/* The grid of windows: fixed for all sides. */
#define WINDOW_BASE  UINT64_C(0x100000000000)
#define WINDOW_BYTES (UINT64_C(256) << 30)
#define WINDOWS	     448u
#define WINDOW_WORDS (WINDOWS / 64)

/* Of a session (state/session.h). The thread that opens the session writes it before any other
 * thread may read it; read-only afterwards. */
struct connection {
	int control_fd;
	int doorbell_fd;
	struct shm_view view;
	uint64_t session;
	uint64_t window_base, device_bytes, host_bytes;
	uint32_t spin_us;
	int driver_version;
};

#define CONNECTION_NULL ((struct connection){.control_fd = -1, .doorbell_fd = -1})

/* What a Hello wants of the service: Hello.describe. */
enum connect_want { CONNECT_SESSION, CONNECT_SESSION_OF_ONE, CONNECT_DESCRIPTION };

/**
 * Connects the calling thread's session to the service of one device and does the handshake.
 * @number: of the device; @memory_limit: most memory that the program wants there, bytes; 0: no
 * limit
 * @want: CONNECT_SESSION_OF_ONE: a session if the service has a single device, else a description
 * @ret_answer: holds Welcome or Description afterwards, without its descriptors
 * Return: CUDA_SUCCESS with the session's connection filled in for CONNECT_SESSION;
 * CUDA_ERROR_MPS_CONNECTION_FAILED without a service, CUDA_ERROR_MPS_SERVER_NOT_READY if the
 * service does not answer in time, the service's own refusal, CUDA_ERROR_OUT_OF_MEMORY. The reason
 * was logged.
 */
CUresult connect_open(
	unsigned number, uint64_t memory_limit, enum connect_want want, struct control_answer *ret_answer);

/** True if there is something at the place of a device's socket. */
bool connect_is_place(unsigned number);

/** Closes the connection of the calling thread's session, which cuInit cannot use. */
void connect_close(void);

/**
 * Around a fork: the descriptors of all connections, also of one in progress, do not change
 * meanwhile, unless the fork takes long.
 */
void connect_hold(void);
void connect_release(void);

/** Closes these descriptors. Under connect_hold(). */
void connect_abandon(void);

/* For an address whose mapping does not count as taken: the end of that mapping; 0 for any other
 * address. */
typedef uint64_t connect_own_fn(uint64_t address);

/**
 * Marks the windows of the grid that are completely free in this process now; all windows if the
 * map cannot be read: the reservation notices a taken window. @end_of_own: may be NULL
 */
void connect_look(connect_own_fn *end_of_own, uint64_t ret_words[WINDOW_WORDS]);

/**
 * Reads a whole file as a string, which the caller frees; NULL without memory or without the file.
 */
char *connect_read_text(const char *path);

/** Reserves addresses, so that no other mapping of this process uses them. Return: 0 or -errno. */
int connect_reserve(uint64_t base, uint64_t bytes);

/**
 * Marks the windows of the grid that are completely free in a process, from the text of its memory
 * map; NULL: all windows.
 */
void connect_free_windows(const char *maps, connect_own_fn *end_of_own, uint64_t ret_words[WINDOW_WORDS]);

#endif
