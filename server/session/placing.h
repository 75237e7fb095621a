// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// Code that cannot be loaded beside what other sessions run (executor/gate.c): the session goes on in an
// executor of its own, where it is loaded, or the load is tried again for load_place_ms and then refused.
// Daemon, loop thread only.

#ifndef FRMPS_SERVER_SESSION_PLACING_H
#define FRMPS_SERVER_SESSION_PLACING_H

#include "protocol/wire.h"

struct request;

/** The executor refused to load the request's code with CUDA_ERROR_SYSTEM_NOT_READY. May end the request. */
void placing_begin(struct request *request, const struct wire_reply *reply);

#endif
