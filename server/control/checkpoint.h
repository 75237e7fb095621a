// Orders that stop a program, move its memory, and let it go on: the operator's pause, suspend and
// resume, and the steps of the driver's cuCheckpointProcess*. All act on the same two facts, so
// that each may follow any other:
//
//                         lock, pause                    checkpoint
//              RUNNING ────────────────► LOCKED ─────────────────────► CHECKPOINTED
//                 ▲ ▲                     │  ▲         suspend             │  │
//                 │ └─── unlock, resume ──┘  └──────── restore ────────────┘  │
//                 └────────────────────────── resume ─────────────────────────┘
//
//   RUNNING       the session is not paused. Its memory may be away for all that: the program's
//                 next command brings the memory back
//   LOCKED        session_is_paused(). Behind a lock, nothing of the session is on the device
//   CHECKPOINTED  paused and session->checkpointed: the memory is off the device until somebody
//                 asks for it. Others that share device memory with the session are running, and
//                 wait at their next call
//   FAILED        the program has its sticky error, and can only end
//
// A session has one order at a time. An order that changes nothing leaves the state as it was. A
// restore makes the session LOCKED at once, and CHECKPOINTED again if there is no room; otherwise
// the state changes with the last step alone. If the daemon dies in the middle, the session is in
// the state before, or locked, and the place of its memory is a matter of standby/swap.c.
//
// Daemon, loop thread only.

#ifndef FRMPS_SERVER_CONTROL_CHECKPOINT_H
#define FRMPS_SERVER_CONTROL_CHECKPOINT_H

struct caller;
struct session;

/** Answers commands (commands.def). */
void checkpoint_answer_pause(struct caller *caller);
void checkpoint_answer_suspend(struct caller *caller);
void checkpoint_answer_resume(struct caller *caller);
void checkpoint_answer_process(struct caller *caller);

/** The operator is gone: a lock that is not complete is undone, other orders go on. */
void checkpoint_forget(struct session *session, const struct caller *caller);
/** The session ends. */
void checkpoint_abandon(struct session *session);

#endif
