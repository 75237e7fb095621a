// A service with a client: the daemon with fakes for its children (fake_children.h), all of them
// up.

#ifndef FRMPS_TESTS_UNIT_SERVER_SESSION_FIXTURE_H
#define FRMPS_TESTS_UNIT_SERVER_SESSION_FIXTURE_H

#include "tests/lib/suite.h"
#include "tests/unit/server/fake_children.h"

#define MIB (UINT64_C(1) << 20)

extern struct fake *fake;
extern struct fake_child *keeper, *active, *standby;
extern struct fake_client client;

/** The service, nobody yet. */
void boot(void);
void end(void);
/** The same with a client that is served. */
void join(void);
void part(void);

#endif
