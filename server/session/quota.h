// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// What all users share because it is the service's own: open files and the memory of records. Without a file left an
// answer of the keeper cannot be received, and a record that finds no room is the end of the daemon; so both are given
// out to sessions only as far as the service itself can spare them, and a user never gets all. Guests (guests.h) have a
// share of the files of their own: sessions never get it, and guests never more. Daemon, loop thread only.

#ifndef FRMPS_SERVER_SESSION_QUOTA_H
#define FRMPS_SERVER_SESSION_QUOTA_H

#include <stdbool.h>
#include <stdint.h>

struct client;
struct daemon;
struct wire_message;

/** Whether the service can keep what a success of a request leaves. */
bool quota_allows(const struct client *client, const struct wire_message *message);

/** Whether the service has files left for one more session. */
bool quota_allows_session(const struct daemon *daemon);

/* Guests that there may be at least and at most, however few or many files the service may open. */
#define QUOTA_GUESTS_LEAST 16u
#define QUOTA_GUESTS_MOST  256u

/** How many guests there may be, all users' together. */
uint64_t quota_guests(const struct daemon *daemon);

#endif
