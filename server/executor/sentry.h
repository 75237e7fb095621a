// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// Finding out that the context is lost when nobody issues anything. Serving thread; main thread once a
// session is detached.

#ifndef FRMPS_SERVER_EXECUTOR_SENTRY_H
#define FRMPS_SERVER_EXECUTOR_SENTRY_H

#include "server/executor/session.h"

/** Something of the stream is on the device. */
void sentry_note(struct session *session, struct stream *stream);

/** Forgets streams of which everything is done; asks the driver about the others when it is time. */
void sentry_look(struct session *session);

/** When to look again although nobody rings: ns, UINT64_MAX = never. */
uint64_t sentry_next_look(const struct session *session, uint64_t now);

#endif
