// Questions to the service beside the program's session: as an operator's program asks them
// (server/control/caller.h). Each question uses a connection of its own: no state is kept, and a
// fork does no harm. Any thread; blocks.

#ifndef FRMPS_CLIENT_LINK_ASK_H
#define FRMPS_CLIENT_LINK_ASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"
#include "protocol/wire.h"

/**
 * Asks the service about one of its devices. @number: of the device, from 0
 * @command: row of server/control/commands.def
 * @patience_s: longest wait for the answer, seconds; 0: no limit
 * @ret_text: the document, which the caller frees; NULL: there is none
 * Return: the service's code; CUDA_ERROR_MPS_CONNECTION_FAILED: nothing was asked;
 * CUDA_ERROR_MPS_RPC_FAILURE: there is no answer, and the service may have done what was asked
 */
CUresult ask_service(unsigned number, const char *command, const struct wire_names *arguments,
	unsigned patience_s, char **ret_text);

/*
 * Values of a document: JSON without blanks, as the service writes it. A quote within a text has a
 * backslash before it, so `"key":` is always a key.
 */

/** Return: the begin of a key's value; NULL without the key */
const char *ask_find(const char *text, const char *key);
/** Return: false without such a number, and beyond the type */
bool ask_number(const char *text, const char *key, uint64_t *ret_number);
bool ask_small(const char *text, const char *key, uint32_t *ret_number);
/** Rejects texts with an escape. Return: false without such a text, and if the text does not fit */
bool ask_text(const char *text, const char *key, char *ret_text, size_t size);

#endif
