// The session with the service: finding it, the handshake, mapping the regions, keeping the window
// of the address space. Opened once by cuInit and never closed: the kernel does that at exit, and
// the service sees it.

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

struct connection {
	int control_fd;
	int doorbell_fd;
	struct shm_view view;
	uint64_t session;
	uint64_t window_base, device_bytes, host_bytes;
	uint32_t spin_us;
	int driver_version;
	bool has_windows;     /* FRMPS_FEATURE_WINDOWS */
	bool has_host_memory; /* FRMPS_FEATURE_HOST */
};

/* The process's one connection. Written by cuInit before anybody may look, read-only afterwards. */
extern struct connection connection;

/**
 * Connects and shakes hands.
 * @welcome: holds the service's Welcome afterwards, for the device snapshot, without its
 * descriptors
 * Return: CUDA_SUCCESS with `connection` filled in; CUDA_ERROR_MPS_CONNECTION_FAILED when nobody is
 * there, CUDA_ERROR_MPS_SERVER_NOT_READY when it does not answer in time, the service's own
 * refusal, CUDA_ERROR_OUT_OF_MEMORY. The reason was logged.
 */
CUresult connect_open(struct control_answer *welcome);

/** Gives a connection back that cuInit cannot use. */
void connect_close(void);

/** Around a fork: what the process has of a connection, whole or half made, does not change
 * meanwhile, unless that takes long. */
void connect_hold(void);
void connect_let_go(void);

/** Closes all of that. Under connect_hold(). */
void connect_abandon(void);

/* The end of addresses that do not count as taken although they are; 0: the address is none of
 * them. */
typedef uint64_t connect_own_fn(uint64_t address);

/** Marks the windows of the grid that are wholly free in this process now; all where that cannot be
 * seen: who reserves one notices. @end_of_own: may be NULL */
void connect_look(connect_own_fn *end_of_own, uint64_t ret_words[WINDOW_WORDS]);

/** A whole file as a string, the caller's; NULL without memory or without the file. */
char *connect_read_text(const char *path);

/** Keeps everybody else in this process out of addresses. Return: 0 or -errno. */
int connect_reserve(uint64_t base, uint64_t bytes);

/** Marks the windows of the grid that are wholly free in a process, from the text of its memory
 * map; NULL: all. */
void connect_free_windows(const char *maps, connect_own_fn *end_of_own, uint64_t ret_words[WINDOW_WORDS]);

#endif
