package proc

// Image is what a process is, as far as it can be seen from outside.
type Image struct {
	Stat
	UID  int
	Exe  string   // the file it executes, all links followed, also when it was removed since; "" = cannot be seen
	Argv []string // as it shows them now; a process may write over its own
	Dir  string   // its working directory; "" = cannot be seen
	Run  string   // HANDSEL_RUN it was started with; "" = none, or cannot be seen
}
