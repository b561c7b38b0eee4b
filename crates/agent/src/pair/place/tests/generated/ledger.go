// Package ledger keeps accounts.
package ledger

import (
	"errors"
	"fmt"
)

// ErrShort says that an account has too little.
var ErrShort = errors.New("not enough on the account")

// Account is somebody's money.
type Account struct {
	Owner   string
	balance int
}

// Ledger has all accounts.
type Ledger struct {
	accounts map[string]*Account
	total    int
}

// New makes an empty ledger.
func New() *Ledger {
	return &Ledger{accounts: map[string]*Account{}}
}

// Open adds an account.
func (l *Ledger) Open(owner string) *Account {
	account := &Account{Owner: owner}
	l.accounts[owner] = account
	return account
}

// Pay moves money from one account to another.
func (l *Ledger) Pay(from, to string, amount int) error {
	payer, ok := l.accounts[from]
	if !ok {
		return fmt.Errorf("no account of %s", from)
	}
	if payer.balance < amount {
		return ErrShort
	}
	payer.balance -= amount
	l.accounts[to].balance += amount
	return nil
}

func (a *Account) String() string {
	return fmt.Sprintf("%s: %d", a.Owner, a.balance)
}
