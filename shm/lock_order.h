// The order of locks, asserted: in checked builds (sanitizers, buildtype=debug) meson lets the
// compiler read this header before each file of client/ and server/. Taking a lock then ends the
// process with both names, if the thread holds a lock of the same or of a higher rank. The table of
// names and ranks is locks.def. Other builds do not see this header.
//
// A try cannot wait for another thread, so a try may come in any order; what the thread takes
// afterwards may not. Waiting for a condition does not change what a thread holds.

#ifndef FRMPS_SHM_LOCK_ORDER_H
#define FRMPS_SHM_LOCK_ORDER_H

#include <errno.h>
#include <pthread.h>

struct lock_class;

/**
 * Call before the thread waits for a lock, and when the thread has the lock. Any thread.
 * @class: remembered for this place in the code
 * @file, @expression: the place
 */
void lock_order_check(const struct lock_class **class, const char *file, const char *expression);
void lock_order_note(
	const void *lock, const struct lock_class **class, const char *file, const char *expression);
/** The thread gives the lock back; @is_new: initializes the lock, which it may hold from before a
 * fork. */
void lock_order_drop(const void *lock, int is_new);

#define LOCK_ORDER_TAKE(call, lock, expression)                                                              \
	__extension__({                                                                                      \
		static const struct lock_class *lock_class_;                                                 \
		int lock_error_;                                                                             \
		lock_order_check(&lock_class_, __FILE__, expression);                                        \
		lock_error_ = call;                                                                          \
		if (!lock_error_)                                                                            \
			lock_order_note(lock, &lock_class_, __FILE__, expression);                           \
		lock_error_;                                                                                 \
	})

#define LOCK_ORDER_TRY(call, lock, expression)                                                               \
	__extension__({                                                                                      \
		static const struct lock_class *lock_class_;                                                 \
		int lock_error_ = call;                                                                      \
		if (!lock_error_)                                                                            \
			lock_order_note(lock, &lock_class_, __FILE__, expression);                           \
		lock_error_;                                                                                 \
	})

/* A macro's own name within its text is the function. */
#define pthread_mutex_lock(lock)    LOCK_ORDER_TAKE(pthread_mutex_lock(lock), lock, #lock)
#define pthread_rwlock_rdlock(lock) LOCK_ORDER_TAKE(pthread_rwlock_rdlock(lock), lock, #lock)
#define pthread_rwlock_wrlock(lock) LOCK_ORDER_TAKE(pthread_rwlock_wrlock(lock), lock, #lock)
#define pthread_mutex_trylock(lock) LOCK_ORDER_TRY(pthread_mutex_trylock(lock), lock, #lock)
#define pthread_mutex_timedlock(lock, until)                                                                 \
	LOCK_ORDER_TAKE(pthread_mutex_timedlock(lock, until), lock, #lock)
#define pthread_mutex_unlock(lock)	     (lock_order_drop(lock, 0), pthread_mutex_unlock(lock))
#define pthread_rwlock_unlock(lock)	     (lock_order_drop(lock, 0), pthread_rwlock_unlock(lock))
#define pthread_mutex_init(lock, attributes) (lock_order_drop(lock, 1), pthread_mutex_init(lock, attributes))

#endif
