// Address ranges that the program reserved (cuMemAddressReserve), and where they come from: a part
// of the session's own window for small ones; further windows for what does not fit there, which
// the service gives when they are needed, as large as they are needed, and gets back when they are
// empty. What is for host memory comes from the window's host part: executors have reserved the
// rest with the driver, for device memory. Any thread.

#ifndef FRMPS_CLIENT_STATE_SPACE_H
#define FRMPS_CLIENT_STATE_SPACE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"

struct reservation;

struct region {
	uint64_t base, bytes;
	struct reservation *first;
	struct region *next;
};

/* Of a session. */
struct space {
	pthread_mutex_t lock;
	pthread_mutex_t growing;  /* held while the service is asked for windows */
	struct region home;	  /* and all behind it: guarded by lock */
	struct region host;	  /* only a list, in no order: the same */
	_Atomic unsigned further; /* regions behind it */
};

/* Reservations start at multiples of this. */
struct session;

#define SPACE_GRAIN UINT64_C(0x200000)

/* Bytes of the window's device part, at its end, that belong to reservations and to the service
 * itself. */
uint64_t space_bytes(void);

/**
 * Reserves addresses.
 * @bytes: at least 1
 * @alignment: a power of two, or 0
 * @hint: the wanted address, used if possible, or 0
 * Return: CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY
 */
CUresult space_reserve(uint64_t bytes, uint64_t alignment, uint64_t hint, uint64_t *ret_address);
/** The same for host memory, without a hint. */
CUresult space_reserve_host(uint64_t bytes, uint64_t alignment, uint64_t *ret_address);

/**
 * Frees a reservation, with its original values. CUDA_ERROR_INVALID_VALUE if there is none with
 * these.
 */
CUresult space_free(uint64_t address, uint64_t bytes);

/** Whether a reserved address is for host memory. */
bool space_is_host(uint64_t address);

/** True if an address lies in a window of a session, its own or a further one. */
bool space_is_window(uint64_t address);

struct peer_window;

/** The window of a session that holds an address: the device part or the host part of its own one,
 * or a further one. Return: false: none does */
bool space_window(struct session *session, uint64_t address, struct peer_window *ret_window);

/** The session in which the addresses are reserved; NULL: a single reservation does not hold all of
 * the bytes. */
struct session *space_owner(uint64_t address, uint64_t bytes);

/** Called by session start. */
void space_start(void);

#endif
