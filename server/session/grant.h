// What a program is granted on the device: the terms in force, and the multiprocessors that they
// leave. The same rules for a session and for a program that asks before it has a session. Daemon,
// loop thread only.

#ifndef FRMPS_SERVER_SESSION_GRANT_H
#define FRMPS_SERVER_SESSION_GRANT_H

#include <stdint.h>

struct daemon;
struct domain;
struct subject;
struct terms;
struct wire_hello;

/*
 * The smallest of the program's own wish and of what operators have set so far.
 * @domain: NULL: the user has none yet
 */
uint64_t grant_memory_wish(
	const struct daemon *daemon, const struct domain *domain, const struct wire_hello *hello);
uint64_t grant_sm_wish(
	const struct daemon *daemon, const struct domain *domain, const struct wire_hello *hello);
uint64_t grant_class_wish(const struct daemon *daemon, const struct wire_hello *hello);

/** The terms that a program gets which begins now. @hello: its wishes */
void grant_terms(const struct daemon *daemon, const struct subject *subject, const struct wire_hello *hello,
	struct terms *ret_terms);

/** Multiprocessors that a program on these terms may use for certain, as far as the device and
 * partitions allow. @partition: its number; 0: none */
uint32_t grant_sms(const struct daemon *daemon, const struct terms *terms, uint32_t partition);

#endif
