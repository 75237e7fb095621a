// The way onto the ring: one short critical section per command that gives the command its place in
// its stream, makes the default-stream joins in front of it, and writes the record in place. Runs
// on the program's threads.
//
// submit_begin() takes the ring lock and a commit releases it: nothing between the two may block,
// call the service or take another lock.

#ifndef FRMPS_CLIENT_SUBMIT_SUBMIT_H
#define FRMPS_CLIENT_SUBMIT_SUBMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/command.h"
#include "protocol/cuda_abi.h"

struct client_stream;

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
 * CUDA_ERROR_INVALID_HANDLE when the stream was destroyed meanwhile.
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
 * The same without any wait, and only if the stream has had no command since `seq`.
 * Return: whether the lock is held, and submit_commit_own() or submit_commit_quietly() is to follow
 */
bool submit_try_own(struct client_stream *stream, enum frmps_op op, uint32_t bytes, uint64_t seq,
	struct submit *ret_submit);

/**
 * From here to submit_release() nobody else's command comes between those of the calling thread,
 * which waits for the end of another one's claim; others wait in submit_begin(). Not twice, and not
 * from a callback of the program.
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

/** The same for submit_begin_own(). */
void submit_commit_own(struct submit *submit);

/** The same, but an executor that sleeps may sleep on: another command will follow. */
void submit_commit_quietly(struct submit *submit);

/** From here on there may be submitted to the stream. */
void submit_open(struct client_stream *stream);

/** If the stream never had a command: nothing may be submitted to it any more. Return: whether that
 * is so. */
bool submit_close_unused(struct client_stream *stream);

/** Sends the stream's last command: nothing may be submitted to it any more. It needs no credit. */
CUresult submit_close(struct client_stream *stream);

/** Asks for a mark at or behind `seq`, unless that was asked before. */
CUresult submit_mark(struct client_stream *stream, uint64_t seq);

/** Asks for a mark behind everything the stream has, whatever was asked before. */
CUresult submit_mark_again(struct client_stream *stream);

/** Asks for a wake-up when `seq` is done. */
CUresult submit_wake(struct client_stream *stream, uint64_t seq);

/**
 * Waits until the executor has taken everything that was written so far: what is not held back in
 * its stream is then in the driver's hands. Return: CUDA_SUCCESS, the sticky error.
 */
CUresult submit_drain(void);

/** Start of the ring. Called by process start. */
void submit_start(void);

#endif
