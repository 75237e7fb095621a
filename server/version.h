// Version of the service, one place. The build may set another.

#ifndef FRMPS_SERVER_VERSION_H
#define FRMPS_SERVER_VERSION_H

#ifndef SERVER_VERSION
#define SERVER_VERSION "0.2.0"
#endif

#endif
