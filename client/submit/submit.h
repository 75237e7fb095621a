// The way onto the ring of a stream's session: a short critical section per command, which gives
// the command its place in its stream, makes the default-stream joins in front of it, and writes
// the record in place. Runs on the program's threads.
//
// submit_begin() takes the ring lock and a commit releases it: nothing between the two may block,
// call the service or take another lock.

#ifndef FRMPS_CLIENT_SUBMIT_SUBMIT_H
#define FRMPS_CLIENT_SUBMIT_SUBMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "client/submit/join.h"
#include "client/submit/lock.h"
#include "protocol/command.h"
#include "protocol/cuda_abi.h"
#include "shm/ring.h"

struct client_stream;

/* Of a session. */
struct ring {
	struct submit_lock lock;
	struct ring_writer writer; /* guarded by lock, as the next */
	struct join join;
};

/* Timed records of two events of the shim's own, directly in front of a command and behind it. */
struct submit_timing {
	uint32_t events[2]; /* their numbers */
	uint64_t seqs[2];   /* written by the submission: the records' places in the stream; 0: none */
};

struct submit {
	struct client_stream *stream;
	struct frmps_head *head; /* on the ring, filled in; flags may be changed until commit */
	void *body;		 /* body followed by payload, on the ring: write-only, never read back */
	uint64_t seq;		 /* the command's place in its stream */
};

/**
 * Reserves a record and enters the critical section.
 * @bytes: body and payload together, without head and padding
 * Waits (outside the lock) while the ring is full or the stream has no credit.
 * Return: CUDA_SUCCESS with the lock held; without it the sticky error, or
 * CUDA_ERROR_INVALID_HANDLE if the stream was destroyed meanwhile.
 */
CUresult submit_begin(
	struct client_stream *stream, enum frmps_op op, uint32_t bytes, struct submit *ret_submit);

/**
 * The same with a record in front of the command; submit_commit_timed() puts one behind it. The
 * command leaves room for both in FRMPS_RECORD_MAX. @timing: NULL: no records
 */
CUresult submit_begin_timed(struct client_stream *stream, enum frmps_op op, uint32_t bytes,
	struct submit_timing *timing, struct submit *ret_submit);

/** The same for commands of the shim itself: no joins, and no synchronisation waits for them. */
CUresult submit_begin_own(
	struct client_stream *stream, enum frmps_op op, uint32_t bytes, struct submit *ret_submit);

/**
 * As submit_begin_own(), without any wait, and only if the stream has had no command since `seq`.
 * Return: true with the lock held; submit_commit_own() or submit_commit_quietly() must follow
 */
bool submit_try_own(struct client_stream *stream, enum frmps_op op, uint32_t bytes, uint64_t seq,
	struct submit *ret_submit);

/**
 * From here to submit_release() no other thread's command comes between the commands of the calling
 * thread. Waits for the end of another thread's claim; other threads wait in submit_begin(). Not
 * twice, and not from a callback of the program.
 * Return: CUDA_SUCCESS, the sticky error, CUDA_ERROR_INVALID_HANDLE as above,
 * CUDA_ERROR_NOT_PERMITTED
 */
CUresult submit_claim(struct client_stream *stream);
void submit_release(struct client_stream *stream);

/** Publishes the record, leaves the critical section, rings the doorbell if the executor sleeps. */
void submit_commit(struct submit *submit);

/**
 * The same for submit_begin_timed().
 * @early: the last command of a synchronous call that returns although the command may not be done:
 * everything that is submitted from now on, to any stream, runs behind it
 */
void submit_commit_timed(struct submit *submit, struct submit_timing *timing, bool early);

/** Commits a record of submit_begin_own(). */
void submit_commit_own(struct submit *submit);

/** As submit_commit_own(), but does not wake the executor: another command will follow. */
void submit_commit_quietly(struct submit *submit);

/** Opens the stream for submissions. */
void submit_open(struct client_stream *stream);

/** If the stream never had a command: closes the stream for submissions. Return: true if closed. */
bool submit_close_unused(struct client_stream *stream);

/**
 * Sends the stream's last command, and closes the stream for submissions. The command needs no
 * credit.
 */
CUresult submit_close(struct client_stream *stream);

/** Requests a mark at or behind `seq`, unless there was such a request. */
CUresult submit_mark(struct client_stream *stream, uint64_t seq);

/** Requests a mark behind all commands of the stream, whatever was requested before. */
CUresult submit_mark_again(struct client_stream *stream);

/** Requests a wake-up when `seq` is done. */
CUresult submit_wake(struct client_stream *stream, uint64_t seq);

/**
 * Waits until the executor has taken all records of the calling thread's session written so far:
 * the driver then has every command that nothing holds back in its stream. Return: CUDA_SUCCESS,
 * the sticky error.
 */
CUresult submit_drain(void);

/** Start of the ring. Called by session start. */
void submit_start(void);

#endif
