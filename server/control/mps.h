// Verbs of stock MPS that the service decides on: limits, starting and ending. Refuses verbs that
// the service does not support, and logs them. Daemon, loop thread only.
//
// A server of stock MPS is the active executor of a domain; its process is the server's name.
// Limits and priority tighten what the configuration allows. The default is the daemon's
// (memory_default, sm_default, class_default), a server's limits are its domain's (memory_limit,
// sm_percent); both hold for sessions that begin later. SM partitions (session/partition.h) change
// for sessions that are there as well.

#ifndef FRMPS_SERVER_CONTROL_MPS_H
#define FRMPS_SERVER_CONTROL_MPS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct daemon;
struct caller_request;

struct mps_answer {
	int32_t code;	       /* CUresult; 0: done */
	char text[256];	       /* output of the verb, or the reason of its refusal */
	bool is_number;	       /* the output is a number: */
	uint64_t number;       /* bytes, percent, a priority */
	bool stops;	       /* the service is to end once this is sent */
	uint64_t stop_seconds; /* programs' time for ending */
};

/** Executes a verb. @uid: of the operator @request: a row of commands.def, VERB */
void mps_do(struct daemon *daemon, uid_t uid, const struct caller_request *request, struct mps_answer *ret);

/**
 * Bytes of VALUE, a number with K, M or G.
 * Return: false for any other text
 */
bool mps_parse_value(const char *text, uint64_t *ret_bytes);

#endif
