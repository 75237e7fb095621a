// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// Closing what comes from outside. A program can send any file, and whoever lets go of the last copy of it may have to
// wait for as long as its maker likes: a socket that lingers, a file of a file system that is a program. Only memory is
// closed in the caller's thread, all else in one of its own.

#ifndef FRMPS_SERVER_LOOP_DISCARD_H
#define FRMPS_SERVER_LOOP_DISCARD_H

#include <stdbool.h>

struct packet;

/** Whether all descriptors of a packet are memory (memfd). */
bool discard_is_harmless(const struct packet *packet);
/** Closes those of one that is not. */
void discard_fds(struct packet *packet);
/**
 * Closes a socket. What is unread on it goes, and nothing more can be sent to it, whoever else holds it.
 * @is_deposited: somebody else of the house has it, too
 */
void discard_socket(int socket, bool is_deposited);

#endif
