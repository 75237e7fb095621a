// Asks the service's devices for their descriptions, side by side: daemons that hang cost a start
// the timeout (FRMPS_CONNECT_TIMEOUT) once, however many they are. Thread as of connect.h.

#ifndef FRMPS_CLIENT_LINK_INQUIRY_H
#define FRMPS_CLIENT_LINK_INQUIRY_H

#include <stdbool.h>

#include "client/link/control.h"
#include "protocol/cuda_abi.h"
#include "protocol/place.h"

/* Gets the description of a device, valid until the function returns. Return: CUDA_SUCCESS, or an
 * error that ends the inquiry */
typedef CUresult inquiry_told_fn(const struct wire_description *description);

/**
 * Asks devices for their descriptions, side by side: the timeout is that of all together. A device
 * that does not answer is just not told of. No connection stays.
 * @asked: by number
 * @answer: room
 * @told: for each answer, as they come
 * Return: CUDA_SUCCESS; an error of @told, or of the variables of mps.h
 */
CUresult inquiry_ask(const bool asked[PLACE_DEVICES], struct control_answer *answer, inquiry_told_fn *told);

/** Closes what is open. In a forked child, under connect_hold(). */
void inquiry_abandon(void);

#endif
